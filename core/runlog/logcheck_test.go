package runlog

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// whole is a run log of two points of one GPU.
func whole() *Log {
	s := &Log{Version: Version, GPUs: make([]GPU, 1), Memory: MemorySeries{TimesS: []float64{0, 1}, HostUsed: Column{1, math.NaN()}, GPUUsed: []Column{{1, 2}}}}
	s.Activity.GPUs = make([]GPUSeries, 1)
	return s
}

func TestCheck(t *testing.T) {
	require.NoError(t, whole().Check())
	for want, change := range map[string]func(*Log){
		"memory.host_used_bytes has 1 entries, not 2":             func(s *Log) { s.Memory.HostUsed = Column{1} },
		"memory.gpu_used_bytes[0] has 3 entries, not 2":           func(s *Log) { s.Memory.GPUUsed[0] = Column{1, 2, 3} },
		"activity.cpu_share has 1 entries, not 0":                 func(s *Log) { s.Activity.CPUShare = Column{1} },
		"activity.gpus[0].power_w has 1 entries, not 0":           func(s *Log) { s.Activity.GPUs[0].PowerW = Column{1} },
		"steps.kind has 1 entries, not 0":                         func(s *Log) { s.Steps.Kind = []string{KindTrain} },
		"memory.host_used_bytes[0] = +Inf is not a finite number": func(s *Log) { s.Memory.HostUsed[0] = math.Inf(1) },
		"memory.times_s[1] = 1e+308 is not a finite number":       func(s *Log) { s.Memory.TimesS[1] = 1e308 },
		"alerts[0].seconds_left = -1e+308 is not a finite number": func(s *Log) { far := -1e308; s.Alerts = []Alert{{Seconds: &far}} },
		"its columns are not those of 0 GPUs":                     func(s *Log) { s.GPUs = nil },
		"it lasts -1 s":                                           func(s *Log) { s.DurationS = -1 },
	} {
		s := whole()
		change(s)
		err := s.Check()
		require.ErrorContains(t, err, want)
		assert.Equal(t, fault.Corrupt, fault.From(err).Code)
	}
}
