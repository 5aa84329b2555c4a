"""From a body to a record: routes, bodies, what a caller is admitted to, and the gateway that is put together here."""
