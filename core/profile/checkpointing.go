package profile

import "fmt"

// Checkpointing is which layers are computed again in the backward pass, instead of keeping what
// they computed.
type Checkpointing struct {
	EveryN  int  // each n-th layer, as transformers counts them; 0: none
	Offload bool // what it saves is kept in pinned host memory
}

// CheckpointingOf is that of settings as users know them: whether there is any, of each how many
// layers one, below 1 of each, and whether what it saves is offloaded.
func CheckpointingOf(on bool, everyN int, offload bool) Checkpointing {
	if !on {
		return Checkpointing{}
	}
	return Checkpointing{EveryN: max(1, everyN), Offload: offload}
}

// On reports whether any layer is computed again.
func (c Checkpointing) On() bool { return c.EveryN > 0 }

// Partly reports whether some layers alone are computed again.
func (c Checkpointing) Partly() bool { return c.EveryN > 1 }

// Share is the share of the layers that are computed again, 0 to 1.
func (c Checkpointing) Share() float64 {
	if !c.On() {
		return 0
	}
	return 1 / float64(c.EveryN)
}

// String is "off", "on" or "on every 3rd layer, offloaded".
func (c Checkpointing) String() string {
	if !c.On() {
		return "off"
	}
	words := "on"
	if c.Partly() {
		words += " " + c.which()
	}
	if c.Offload {
		words += ", offloaded"
	}
	return words
}

// With is "without checkpointing", or "with " and its name.
func (c Checkpointing) With() string {
	if !c.On() {
		return "without checkpointing"
	}
	return "with " + c.Name()
}

// Name is "checkpointing" or "offloaded checkpointing of every 3rd layer", of what is on.
func (c Checkpointing) Name() string {
	words := "checkpointing"
	if c.Offload {
		words = "offloaded " + words
	}
	if c.Partly() {
		words += " of " + c.which()
	}
	return words
}

func (c Checkpointing) which() string {
	ending, irregular := map[int]string{2: "nd", 3: "rd"}[c.EveryN]
	if !irregular {
		ending = "th" // up to 20, and more of no model
	}
	return fmt.Sprintf("every %d%s layer", c.EveryN, ending)
}
