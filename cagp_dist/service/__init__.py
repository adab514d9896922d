"""Job files and what is done with them: plan, ingest, run."""
