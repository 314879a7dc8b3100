package runlog

import (
	"math"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestColumnKeepsWhatIsNotKnown(t *testing.T) {
	absent := math.NaN()
	text, err := json.Marshal(struct{ C Column }{Column{1, absent, 2.5, 17179869184, math.Inf(1), 0, -3}})
	require.NoError(t, err)
	assert.Equal(t, `{"C":[1,null,2.5,17179869184,null,0,-3]}`, string(text))
	var back struct{ C Column }
	require.NoError(t, json.Unmarshal(text, &back))
	require.Len(t, back.C, 7)
	assert.True(t, math.IsNaN(back.C[1]))
	assert.Equal(t, 17179869184.0, back.C[3])
	assert.Error(t, json.Unmarshal([]byte(`{"C":["a"]}`), &back))
	assert.ErrorContains(t, json.Unmarshal([]byte(`{"C":[1,1.7e308]}`), &back), "1.7e+308 is out of range")
	require.NoError(t, json.Unmarshal([]byte(`{"C":null}`), &back))
	assert.Nil(t, back.C)
}

func TestHeadroomCountsTheCache(t *testing.T) {
	assert.Equal(t, 7.0, Step{DriverFree: 2, Reserved: 9, Allocated: 4}.Headroom())
	assert.Equal(t, 2.0, Step{DriverFree: 2, Reserved: 4, Allocated: 9}.Headroom(), "counters of different moments")
}
