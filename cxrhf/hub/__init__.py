"""What leaves for the Hugging Face Hub, made ready here."""
