package analytic

import "testing"

func BenchmarkEstimate(b *testing.B) {
	for _, name := range []string{"facebook/wav2vec2-xls-r-300m", "openai/whisper-large-v3"} {
		m, err := Read(named(name))
		if err != nil {
			b.Fatal(err)
		}
		for _, simulate := range []bool{false, true} {
			r := Request{Batch: 8, Seconds: 15, Precision: "fp16", Checkpointing: true, Simulate: simulate}
			b.Run(map[bool]string{false: "by rule/", true: "simulated/"}[simulate]+name, func(b *testing.B) {
				for range b.N {
					if _, err := m.Estimate(r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkWork is a play that records its operations.
func BenchmarkWork(b *testing.B) {
	for _, name := range []string{"facebook/wav2vec2-xls-r-300m", "openai/whisper-large-v3"} {
		m, err := Read(named(name))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if _, err := m.Work(Request{Batch: 8, Seconds: 15, Precision: "fp16", Checkpointing: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
