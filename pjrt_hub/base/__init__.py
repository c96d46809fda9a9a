"""What both towers stand on: versions, this machine, records, logs. Imports `errors` and itself."""
