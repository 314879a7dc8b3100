package main

import (
	"errors"
	"math/rand/v2"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
)

const layers = 6

// card is one GPU under a training: PyTorch's allocator, simulated, over what the context and others leave of the card.
type card struct {
	a        *allocator.Allocator
	total    float64
	outside  float64 // context and other processes at the start: beyond the allocator's reach
	others   float64 // other processes now, as the driver tells
	weights  float64 // bytes; gradients are as large, optimizer state twice
	perS     float64 // bytes of activations for a second of padded audio, all layers
	remain   float64 // bytes that stay after a step for each padded second: inputs, and what the loop keeps
	share    [layers]float64
	kept     []allocator.Block // of the last step
	grown    float64           // others since the start: taken from under the allocator
	stranded float64           // reserved, and of no use to anyone
	lastFree float64           // what the driver told at its last sample
}

func newCard(rng *rand.Rand, total, others float64) *card {
	outside := 3e8 + 0.004*total + others
	c := &card{total: total, outside: outside, others: others, a: allocator.New(allocator.Settings{Limit: uint64(total - outside), DeviceTotal: uint64(total)})}
	sum := 0.0
	for i := range c.share {
		c.share[i] = 0.6 + rng.Float64()
		sum += c.share[i]
	}
	for i := range c.share {
		c.share[i] /= sum
	}
	return c
}

func (c *card) limit() float64 { return c.total - c.outside }

func (c *card) take(bytes float64) (allocator.Block, error) {
	b, err := c.a.Malloc(uint64(max(bytes, 1)))
	if err == nil && c.grown+c.stranded > 0 && float64(c.a.Stats().Reserved)+c.grown+c.stranded > c.limit() {
		// The driver has less than the allocator was made with: it would have emptied its cache and tried again.
		c.a.EmptyCache()
		if float64(c.a.Stats().Reserved)+c.grown+c.stranded > c.limit() {
			err = errors.New("out of memory")
		}
	}
	return b, err
}

func (c *card) release(blocks ...allocator.Block) {
	for _, b := range blocks {
		if err := c.a.Free(b); err != nil {
			panic(err)
		}
	}
}

// start puts the weights on the card.
func (c *card) start() error {
	for range layers {
		if _, err := c.take(c.weights / layers); err != nil {
			return err
		}
	}
	return nil
}

// forward allocates the activations of a batch, one after the other.
func (c *card) forward(padded float64) (made []allocator.Block, err error) {
	for i := range layers {
		for _, part := range [...]float64{0.5, 0.3, 0.2} {
			b, err := c.take(c.perS * padded * c.share[i] * part)
			if err != nil {
				return made, err
			}
			made = append(made, b)
		}
		temporary, err := c.take(0.1 * c.perS * padded * c.share[i])
		if err != nil {
			return made, err
		}
		c.release(temporary)
	}
	return made, nil
}

// train runs a step: inputs, forward, backward with a gradient for each layer, optimizer.
func (c *card) train(padded float64, first bool) error {
	c.a.ResetPeaks()
	input, err := c.take(c.remain * padded)
	if err != nil {
		return err
	}
	c.release(c.kept...)
	c.kept = []allocator.Block{input}
	made, err := c.forward(padded)
	if err != nil {
		return err
	}
	var gradients []allocator.Block
	for i := layers - 1; i >= 0; i-- {
		g, err := c.take(c.weights / layers)
		if err != nil {
			return err
		}
		gradients = append(gradients, g)
		c.release(made[3*i], made[3*i+1], made[3*i+2])
	}
	for range layers {
		if first {
			if _, err := c.take(2 * c.weights / layers); err != nil {
				return err
			}
		}
	}
	c.release(gradients...)
	return nil
}

// evaluate runs a batch without gradients, of which something may be gathered.
func (c *card) evaluate(padded, gathered float64) (kept allocator.Block, err error) {
	c.a.ResetPeaks()
	temporary, err := c.take(0.15 * c.perS * padded)
	if err != nil {
		return kept, err
	}
	if gathered > 0 {
		kept, err = c.take(gathered)
	}
	c.release(temporary)
	return kept, err
}

// spike takes memory for a moment, as a checkpoint does.
func (c *card) spike(bytes float64) error {
	c.a.ResetPeaks()
	b, err := c.take(bytes)
	if err == nil {
		c.release(b)
	}
	return err
}

// leak keeps bytes for good.
func (c *card) leak(bytes float64) error {
	if bytes < 512 {
		return nil
	}
	_, err := c.take(bytes)
	return err
}

func (c *card) reserved() float64 { return float64(c.a.Stats().Reserved) + c.stranded }

func (c *card) free() float64 { return max(0, c.limit()-c.grown-c.reserved()) }
