"""Problems as analysts have them, each with an answer computed without this library: does the default deliver?"""
