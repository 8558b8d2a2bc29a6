"""The language model and all around it: client, log of calls, prices, prompts and answers, for
every command that asks one.
"""
