"""Models as versions with a history: what is registered, what is promoted, and why."""
