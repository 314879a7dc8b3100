package batching

import "testing"

func BenchmarkCompareMillion(b *testing.B) {
	clips := lognormal(1_000_000, 1)
	for b.Loop() {
		if _, err := Compare(clips, options(Random, 32, fits(100, 30))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOrderMillion(b *testing.B) {
	clips := lognormal(1_000_000, 1)
	for _, mode := range []string{Random, Bucketed, Packed} {
		b.Run(mode, func(b *testing.B) {
			for b.Loop() {
				if _, err := MakeEpoch(clips, options(mode, 32, fits(100, 30))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
