package allocator

import (
	"math/rand/v2"
	"testing"
)

// sequence collects events as a trace holds them.
type sequence struct {
	events []int64
	born   int64
}

func (s *sequence) birth(bytes int64) int64 {
	s.events = append(s.events, bytes)
	s.born++
	return s.born - 1
}

func (s *sequence) death(id int64) { s.events = append(s.events, -id-1) }

// steps is what training does to an encoder of 24 layers: parameters, then steps of their own
// length each, whose forward passes keep activations and drop temporaries and whose backward passes
// give them back from the last layer to the first.
func steps(n int) []int64 {
	r, s := rand.New(rand.NewPCG(7, 7)), &sequence{}
	for range 24 * 16 {
		s.birth(4 * mib)
	}
	for len(s.events) < n {
		var activations []int64
		frames, batch := int64(200+r.IntN(500)), int64(8)
		sizes := []int64{frames * 1024 * 2 * batch, frames * 4096 * 2 * batch, frames * frames * 16 * batch, frames * 4 * batch, 4096}
		for range 24 {
			for op := range 18 {
				id := s.birth(sizes[op%len(sizes)])
				if op%3 == 0 {
					s.death(id)
				} else {
					activations = append(activations, id)
				}
			}
		}
		for i := len(activations) - 1; i >= 0; i-- {
			gradient := s.birth(sizes[i%len(sizes)])
			s.death(activations[i])
			s.death(gradient)
		}
	}
	return s.events
}

// shuffled frees in no order at all, so that a few hundred free blocks of all sizes lie about.
func shuffled(n, live int) []int64 {
	r, s := rand.New(rand.NewPCG(7, 7)), &sequence{}
	var alive []int64
	for len(s.events) < n {
		if len(alive) < live || r.IntN(2) == 0 {
			alive = append(alive, s.birth(int64(randomSize(r))))
			continue
		}
		i := r.IntN(len(alive))
		s.death(alive[i])
		alive[i] = alive[len(alive)-1]
		alive = alive[:len(alive)-1]
	}
	return s.events
}

func run(b *testing.B, events []int64) {
	b.ReportAllocs()
	blocks := make([]Block, 0, len(events))
	for b.Loop() {
		a := New(Settings{})
		blocks = blocks[:0]
		for _, event := range events {
			if event >= 0 {
				block, err := a.Malloc(uint64(event))
				if err != nil {
					b.Fatal(err)
				}
				blocks = append(blocks, block)
			} else if err := a.Free(blocks[-event-1]); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
}

// BenchmarkStep is the figure to hold: 30 000 events in 2 ms.
func BenchmarkStep(b *testing.B) { run(b, steps(30_000)) }

func BenchmarkShuffled(b *testing.B) { run(b, shuffled(30_000, 600)) }

// BenchmarkManyFree frees every second of 60 000 blocks first, so that tens of thousands of free
// blocks lie in the pools while the last events run.
func BenchmarkManyFree(b *testing.B) {
	r, s := rand.New(rand.NewPCG(8, 8)), &sequence{}
	size := func() int64 { return int64(512 * (1 + r.IntN(1500))) }
	for range 60_000 {
		s.birth(size())
	}
	for id := int64(0); id < 60_000; id += 2 {
		s.death(id)
	}
	for range 20_000 {
		s.birth(size())
	}
	run(b, s.events)
}
