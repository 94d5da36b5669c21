"""An executor that measures on a server which serves head sets as adapters, such as vLLM."""

from headcount.integrations.served.executor import Served

__all__ = ["Served"]
