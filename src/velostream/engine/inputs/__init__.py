"""Inputs of a step: sources, tables, derived relations."""
