"""What a run will take, known before it starts: texts to encode, room for their embeddings, hours."""
