"""Language models: chat client, prompts, call log and prices."""
