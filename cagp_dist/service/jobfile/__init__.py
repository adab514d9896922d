"""What a job file is: its tables, values and error messages."""
