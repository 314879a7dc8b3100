package profile

import "fmt"

// Checkpointing is which layers are computed again in the backward pass, instead of keeping what they computed.
type Checkpointing struct {
	EveryN int // each n-th layer, as transformers counts them; 0: none
}

// CheckpointingOf is that of two settings as users know them: whether there is any, and of each how many layers one; below 1, of each.
func CheckpointingOf(on bool, everyN int) Checkpointing {
	if !on {
		return Checkpointing{}
	}
	return Checkpointing{EveryN: max(1, everyN)}
}

// On tells whether any layer is computed again.
func (c Checkpointing) On() bool { return c.EveryN > 0 }

// Partly tells whether some layers alone are computed again.
func (c Checkpointing) Partly() bool { return c.EveryN > 1 }

// Share is the share of the layers that are computed again, 0 to 1.
func (c Checkpointing) Share() float64 {
	if !c.On() {
		return 0
	}
	return 1 / float64(c.EveryN)
}

// String is "off", "on" or "on every 3rd layer".
func (c Checkpointing) String() string {
	switch {
	case !c.On():
		return "off"
	case c.Partly():
		return "on " + c.which()
	}
	return "on"
}

// With is "without checkpointing", or "with " and its name.
func (c Checkpointing) With() string {
	if !c.On() {
		return "without checkpointing"
	}
	return "with " + c.Name()
}

// Name is "checkpointing" or "checkpointing of every 3rd layer", of what is on.
func (c Checkpointing) Name() string {
	if c.Partly() {
		return "checkpointing of " + c.which()
	}
	return "checkpointing"
}

func (c Checkpointing) which() string {
	ending, irregular := map[int]string{2: "nd", 3: "rd"}[c.EveryN]
	if !irregular {
		ending = "th" // up to 20, and more of no model
	}
	return fmt.Sprintf("every %d%s layer", c.EveryN, ending)
}
