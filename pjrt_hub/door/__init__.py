"""From a platform's name to a client: the only place where `finding` and `running` meet."""
