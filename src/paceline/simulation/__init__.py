"""Virtual time and scripted sessions: what forecasts and tests run the engine on."""
