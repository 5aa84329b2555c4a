"""What a tenant may ask for, and what its answers cost: `[tenants]`, `[prices]`."""
