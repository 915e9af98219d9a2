"""The state machines of groups: they decide, are told the time and given their chance, and touch nothing.

`step` has the idiom they share; `groups` is what a runtime talks to, one instance per partition of
`__consumer_offsets`.
"""
