package kernel

// Prototypes returns one empty object of every kind.
func Prototypes() []Object { return prototypes() }
