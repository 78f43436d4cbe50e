"""What a conversation is made of: items, content, tools, options, responses and usage.

This layer knows no database and no provider; the formats and the store are written in its terms.
"""
