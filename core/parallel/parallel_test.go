package parallel

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func TestTheFirstErrorAndEveryJob(t *testing.T) {
	var done atomic.Int32
	err := Do(30, func(i int) error {
		done.Add(1)
		if i%10 == 1 {
			return fault.New(fault.Internal, "", "job %d", i)
		}
		return nil
	})
	require.EqualError(t, err, "job 1")
	require.EqualValues(t, 30, done.Load())
	require.NoError(t, Do(0, nil))
}
