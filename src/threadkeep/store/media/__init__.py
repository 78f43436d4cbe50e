"""Media of items: taken out of their texts, kept in the database or in a blob store, and put back."""
