"""Registration of models as MLflow versions with their lineage, and promotion of champions with a ledger."""
