"""Language models: client, log of calls, prices, prompts and answers."""
