"""Modules that are copied into exported models; they import nothing of Headstart."""
