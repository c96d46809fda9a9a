"""The ground of both towers: versions, this machine, tables, logs. Imports only `errors`."""
