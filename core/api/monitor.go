package api

import (
	"errors"
	"time"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/hardware"
	"github.com/asrconfig/asrconfig-go/core/monitor"
)

var monitors registry[*monitor.Monitor]

// ReadStats copies the newest sample; false when no monitor has the handle. It is the hot path behind ac_stats_read.
func ReadStats(handle uint64, out *monitor.Stats) bool {
	m, ok := monitors.find(handle)
	if ok {
		m.Read(out)
	}
	return ok
}

type startMonitorArgs struct {
	hardwareArgs
	IntervalMS float64 `json:"interval_ms"`
}

type monitorStarted struct {
	Monitor  uint64   `json:"monitor"`
	GPUs     []string `json:"gpus"`      // names, in the order of ac_stats.gpu
	GPUError string   `json:"gpu_error"` // why there are none
}

func startMonitor(a startMonitorArgs) (any, error) {
	started := monitorStarted{GPUs: []string{}}
	reader, err := openGPUs(a.options(), &started)
	if err != nil {
		return nil, err
	}
	m, err := monitor.Start(reader, hardware.OpenHost(a.Root).Memory, time.Duration(a.IntervalMS*float64(time.Millisecond)))
	if err != nil {
		if reader != nil {
			err = errors.Join(err, reader.Close())
		}
		return nil, err
	}
	started.Monitor = monitors.add(m)
	return started, nil
}

// openGPUs gives a nil reader, and the reason in started, on a machine without GPUs: host memory is watched all the same.
func openGPUs(o hardware.Options, started *monitorStarted) (monitor.GPUReader, error) {
	devices, err := hardware.OpenDevices(o)
	if err != nil {
		if f := fault.From(err); f.Code == fault.NotFound {
			started.GPUError = f.Message
			return nil, nil
		}
		return nil, err
	}
	for i := range devices.Count() {
		started.GPUs = append(started.GPUs, devices.Name(i))
	}
	return devices, nil
}

type monitorArgs struct {
	Monitor uint64 `json:"monitor"`
}

func stopMonitor(a monitorArgs) (any, error) {
	m, err := monitors.get(a.Monitor, "monitor")
	if err != nil {
		return nil, err
	}
	monitors.remove(a.Monitor)
	m.Stop()
	return struct{}{}, nil
}

type historyArgs struct {
	Monitor   uint64 `json:"monitor"`
	MaxPoints int    `json:"max_points"`
}

func monitorHistory(a historyArgs) (any, error) {
	m, err := monitors.get(a.Monitor, "monitor")
	if err != nil {
		return nil, err
	}
	return m.History(a.MaxPoints), nil
}

func resetMonitorPeaks(a monitorArgs) (any, error) {
	m, err := monitors.get(a.Monitor, "monitor")
	if err != nil {
		return nil, err
	}
	m.ResetPeaks()
	return struct{}{}, nil
}
