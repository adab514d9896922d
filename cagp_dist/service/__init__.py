"""What is done with a job file: ingest, plan, fit, run. What a job file is stands in `jobfile`."""
