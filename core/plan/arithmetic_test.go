package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestArithmeticIsAParabolaThroughTheTracedLengths: attention grows with the square of a clip's
// length, and a forward pass counts three times.
func TestArithmeticIsAParabolaThroughTheTracedLengths(t *testing.T) {
	m, a := standIns[xlsr], planned(t, described(t, xlsr, speech(400, 20, 1), "T4")).Arithmetic
	require.InEpsilon(t, 65e12, *a.Rate, 1e-3)
	for _, seconds := range []float64{2, 7.3, 20} {
		assert.InEpsilon(t, 3*(m.flops*seconds+m.square*seconds*seconds), a.ClipFLOPs[0]+seconds*(a.ClipFLOPs[1]+seconds*a.ClipFLOPs[2]), 1e-6, "%v s", seconds)
	}
}

// TestAFixedLengthCountsByTranscript: audio is always 30 s.
func TestAFixedLengthCountsByTranscript(t *testing.T) {
	a := planned(t, described(t, whisperSmall, speech(400, 20, 1), "T4")).Arithmetic
	require.NotNil(t, a)
	assert.Equal(t, "labels", a.Unit)
	assert.InEpsilon(t, 3*30*standIns[whisperSmall].flops, a.ClipFLOPs[0]+80*a.ClipFLOPs[1], 1e-6)
}
