package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// flops of a clip of some units, by the plan.
func flops(t *testing.T, name, card string, units float64) float64 {
	t.Helper()
	a := planned(t, described(t, name, speech(400, 20, 1), card)).Arithmetic
	require.NotNil(t, a)
	return a.ClipFLOPs[0] + units*(a.ClipFLOPs[1]+units*a.ClipFLOPs[2])
}

// TestArithmeticIsAParabolaThroughTheTracedLengths: attention grows with the square of a clip's
// length, and a forward pass counts three times.
func TestArithmeticIsAParabolaThroughTheTracedLengths(t *testing.T) {
	m := standIns[xlsr]
	for _, seconds := range []float64{2, 7.3, 20} {
		assert.InEpsilon(t, 3*(m.flops*seconds+m.square*seconds*seconds), flops(t, xlsr, "T4", seconds), 1e-6, "%v s", seconds)
	}
}

// TestAFixedLengthCountsByTranscript: audio is always 30 s.
func TestAFixedLengthCountsByTranscript(t *testing.T) {
	a := planned(t, described(t, whisperSmall, speech(400, 20, 1), "T4")).Arithmetic
	require.NotNil(t, a)
	assert.Equal(t, "labels", a.Unit)
	assert.InEpsilon(t, 3*30*standIns[whisperSmall].flops, a.ClipFLOPs[0]+80*a.ClipFLOPs[1], 1e-6)
}

func TestArithmeticsRate(t *testing.T) {
	for card, rate := range map[string]float64{"T4": 65e12, "A100-40GB": 312e12} {
		a := planned(t, described(t, xlsr, speech(400, 20, 1), card)).Arithmetic
		require.NotNil(t, a.Rate)
		assert.InEpsilon(t, rate, *a.Rate, 1e-3, card)
	}
}
