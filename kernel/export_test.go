package kernel

// Prototypes returns one empty object of every kind.
func Prototypes() []Object { return prototypes() }

// Generation returns a number that grows with every transaction of nftables.
func (e *Engine) Generation() (uint32, error) { return e.generation() }
