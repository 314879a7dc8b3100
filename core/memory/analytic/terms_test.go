package analytic

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func bytesOf(t *testing.T, e Estimate, name string) (sum int64) {
	t.Helper()
	for _, term := range e.Terms {
		if term.Name == name {
			sum += term.Bytes
		}
	}
	require.NotZero(t, sum, "no term %q", name)
	return sum
}

// TestTermsByHand is XLS-R 300M with 8 clips of 15 s in float32: 749 frames, 24 layers of 1024, 16 heads, 4096 inside.
func TestTermsByHand(t *testing.T) {
	e, err := Make(Request{Model: named("xls-r-300m"), Batch: 8, Seconds: 15, FreezeFeatureEncoder: true})
	require.NoError(t, err)
	const (
		hidden = 8 * 749 * 1024 * 4 // 24 543 232, a multiple of 512
		inner  = 4 * hidden
	)
	require.Equal(t, int64(315471520*4+384), bytesOf(t, e, "parameters"), "as one block of 512s")
	require.Equal(t, int64(2*4*(315471520-4210176)+256), bytesOf(t, e, "optimizer state"), "two moments of what trains, in blocks")
	require.Equal(t, int64(24*inner), bytesOf(t, e, "encoder layers: feed-forward inner"))
	require.Equal(t, int64(24*inner), bytesOf(t, e, "encoder layers: gelu"))
	for _, name := range []string{"queries", "keys", "values", "efficient attention", "layer norm", "final layer norm"} {
		require.Equal(t, int64(24*hidden), bytesOf(t, e, "encoder layers: "+name), name)
	}
	require.Equal(t, int64(47*hidden), bytesOf(t, e, "encoder layers: sum"), "two a layer; the last one's is gone")
	require.Equal(t, int64(47*8*749*1024), bytesOf(t, e, "encoder layers: dropout mask"))
	require.Equal(t, int64(24*18023936), bytesOf(t, e, "encoder layers: attention mask, aligned"), "8 × 749 × 752 × 4 B, in blocks")
	require.Equal(t, int64(24*8*16*768*4), bytesOf(t, e, "encoder layers: log-sum-exp"), "rows of 32: 768")
	require.Equal(t, "24 × (batch 8 × frames 749 × inner 4096 × 4 B)", e.Terms[1].Formula)
	require.Equal(t, "backward", e.AtPeak.Phase)
	require.Equal(t, "encoder layers", e.AtPeak.Module)
}

func TestEveryTermCounts(t *testing.T) {
	everyModel(t, func(t *testing.T, m *Model) {
		e, err := m.Estimate(Request{Batch: 4, Seconds: 7, Precision: "fp16", Accumulation: 3})
		require.NoError(t, err)
		var terms, modules, components uint64
		for i, term := range e.Terms {
			terms += uint64(term.Bytes)
			require.NotEmpty(t, term.Formula)
			require.True(t, i == 0 || term.Bytes <= e.Terms[i-1].Bytes, "largest first")
		}
		for _, m := range e.AtPeak.Modules {
			modules += m.Bytes
		}
		for _, bytes := range e.AtPeak.Components {
			components += bytes
		}
		require.Equal(t, [3]uint64{e.PeakAllocated, e.PeakAllocated, e.PeakAllocated}, [3]uint64{terms, modules, components})
		require.Less(t, e.PeakRequested, e.PeakAllocated)
		require.Greater(t, e.PeakRequested, e.PeakAllocated*99/100)
		require.Greater(t, e.PeakReserved, e.PeakAllocated)
		require.Equal(t, "accumulate", e.Phases[0].Segment)
	})
}

func TestFitsAndDevice(t *testing.T) {
	r := Request{Model: named("wav2vec2-base"), Batch: 2, Seconds: 5, DeviceBytes: ptr(int64(1000)), LimitBytes: ptr(int64(1 << 40))}
	e, err := Make(r)
	require.NoError(t, err)
	require.Equal(t, e.PeakReserved+1000, *e.PeakDevice)
	require.True(t, *e.Fits)
	r.LimitBytes = ptr(int64(e.PeakReserved - 1))
	e, err = Make(r)
	require.NoError(t, err)
	require.False(t, *e.Fits)
	r.LimitBytes, r.DeviceBytes = nil, nil
	e, err = Make(r)
	require.NoError(t, err)
	require.Nil(t, e.Fits)
	require.Nil(t, e.PeakDevice)
}

// TestMore asks that more of anything never takes less.
func TestMore(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	everyModel(t, func(t *testing.T, m *Model) {
		peak := func(r Request) uint64 {
			e, err := m.Estimate(r)
			require.NoError(t, err)
			return e.PeakAllocated
		}
		for range 12 {
			r := Request{Batch: 1 + random.Int64N(24), Seconds: 0.5 + 25*random.Float64(), Labels: ptr(random.Int64N(200)), Padded: ptr(true),
				Precision: []string{"fp32", "fp16", "bf16"}[random.IntN(3)], Checkpointing: random.IntN(2) == 0, Optimizer: "adamw_torch"}
			base := peak(r)
			for name, change := range map[string]func(*Request){
				"batch":          func(r *Request) { r.Batch++ },
				"seconds":        func(r *Request) { r.Seconds += 1 },
				"labels":         func(r *Request) { r.Labels = ptr(*r.Labels + 50) },
				"accumulation":   func(r *Request) { r.Accumulation = 2 },
				"no recomputing": func(r *Request) { r.Checkpointing = false },
			} {
				more := r
				change(&more)
				require.GreaterOrEqual(t, peak(more), base, "%s: %+v", name, r)
			}
			r.Optimizer = "adamw_8bit"
			require.Less(t, peak(r), base, "8 bits: %+v", r)
		}
		if *m.profile.Layers > 1 { // else the front end outweighs them: half precision adds casts to its norms
			large := Request{Batch: 24, Seconds: 25}
			single := peak(large)
			large.Precision = "fp16"
			require.Less(t, peak(large), single, "half the activations outweigh the copies of the weights")
		}
	})
}

func TestFrozenTakesLess(t *testing.T) {
	all, err := Make(Request{Model: named("wav2vec2-base"), Batch: 8, Seconds: 15})
	require.NoError(t, err)
	frozen, err := Make(Request{Model: named("wav2vec2-base"), Batch: 8, Seconds: 15, FreezeFeatureEncoder: true})
	require.NoError(t, err)
	require.Less(t, frozen.PeakAllocated, all.PeakAllocated/3*2)
}
