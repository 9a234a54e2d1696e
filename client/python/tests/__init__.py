"""Tests against real daemons, and against recorded lines."""
