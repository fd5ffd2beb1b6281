"""What stands behind the names that clients import: Kintsugi's agent and controller, and the talk between them that MindIO's
interface needs beside. Nothing here is part of the compatible interface."""
