package kernel

// Carried is the host's end of a pair that carries packets. The end that came up
// first drops all until a worker has seen its carrier, which on a host with much to
// do takes seconds. From kernel 6.9 on a question after the link has that done at
// once; before, this waits for it, and after a while no longer.
type Carried struct {
	base
	Link string
}

func (c *Carried) kind() string   { return "carried" }
func (c *Carried) Side() Side     { return Host }
func (c *Carried) Shared() bool   { return false }
func (c *Carried) on() linkName   { return linkName{Host, c.Link} }
func (c *Carried) String() string { return "ip link show " + c.Link }

func (c *Carried) ensure(e *Engine) error {
	_, err := e.await(c.Link, (*LinkInfo).operates)
	return err
}

// diff finds nothing: that it is up is another object's.
func (c *Carried) diff(*Engine) ([]string, error) { return nil, nil }
func (c *Carried) remove(*Engine) error           { return nil }
