package allocator

import (
	"math/rand/v2"
	"testing"
)

// events is a sequence like a training step's: births in order, deaths mostly young, sizes from a few dozen values.
func events(n, live int) []int64 {
	r := rand.New(rand.NewPCG(7, 7))
	sizes := make([]int64, 40)
	for i := range sizes {
		sizes[i] = int64(randomSize(r))
	}
	var sequence []int64
	var alive []int64
	for born := int64(0); len(sequence) < n; {
		if len(alive) < live || r.IntN(2) == 0 {
			sequence = append(sequence, sizes[r.IntN(len(sizes))])
			alive = append(alive, born)
			born++
			continue
		}
		at := len(alive) - 1 - min(r.IntN(4)*r.IntN(len(alive)), len(alive)-1)
		sequence = append(sequence, -alive[at]-1)
		alive = append(alive[:at], alive[at+1:]...)
	}
	return sequence
}

func run(b *testing.B, sequence []int64) {
	b.ReportAllocs()
	blocks := make([]Block, 0, len(sequence))
	for b.Loop() {
		a := New(Settings{})
		blocks = blocks[:0]
		for _, event := range sequence {
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
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(sequence)), "ns/event")
}

// BenchmarkStep is the figure to hold: 30 000 events in 2 ms.
func BenchmarkStep(b *testing.B) { run(b, events(30_000, 600)) }

// BenchmarkManyFree frees every second of 60 000 blocks first, so that tens of thousands of free blocks lie in the pools
// while the last third of the events runs.
func BenchmarkManyFree(b *testing.B) {
	r := rand.New(rand.NewPCG(8, 8))
	var sequence []int64
	for range 60_000 {
		sequence = append(sequence, int64(512*(1+r.IntN(1500))))
	}
	for id := int64(0); id < 60_000; id += 2 {
		sequence = append(sequence, -id-1)
	}
	for range 20_000 {
		sequence = append(sequence, int64(512*(1+r.IntN(1500))))
	}
	run(b, sequence)
}
