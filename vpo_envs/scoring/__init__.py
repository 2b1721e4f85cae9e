"""Scoring many responses at a time: threads, processes, Ray."""
