package media

import (
	"errors"
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Info is what the header of a file, and its end where needed, contain.
type Info struct {
	DurationS float64  // playable seconds that the file really holds; finite and > 0
	ClaimedS  *float64 // seconds that the header claims, only when the file holds something else
	// Hz, of the first stream where several are chained; > 0. 48000 for every Opus file, as
	// decoders give it
	SampleRate int
	Channels   int // > 0
	Bits       int // per sample as stored; 0 for Vorbis, Opus and Speex, which have none
	// FFmpeg's name: "pcm_s16le", "pcm_f32le", "adpcm_ima_wav", "flac", "vorbis"
	Codec string
	// how DurationS is known: "header", "tail", "walked" or "estimated" (profile.Methods says what
	// they mean)
	Method string
}

// MaxTicks keeps sums of durations far from overflow.
const MaxTicks = 1 << 53

// ClaimSlack is the difference in seconds up to which a header's duration agrees with the samples:
// priming, padding and coarse clocks explain no more.
const ClaimSlack = 0.5

// Finish checks what every format must have and turns samples per channel into seconds. claimed may
// be 0: no claim.
func Finish(info Info, ticks, claimed int64) (Info, error) {
	return FinishAt(info, ticks, claimed, int64(info.SampleRate))
}

// FinishAt does the same for a format whose clock is not its sample rate: ticks and claimed count
// clock ticks.
func FinishAt(info Info, ticks, claimed, perSecond int64) (Info, error) {
	switch {
	case info.SampleRate <= 0:
		return Info{}, Corrupt("has a sample rate of 0 Hz")
	case info.Channels <= 0:
		return Info{}, Corrupt("has 0 channels")
	case ticks <= 0 && claimed > 0:
		return Info{}, Corrupt("holds no audio, though its header claims %.3f s",
			float64(claimed)/float64(perSecond))
	case ticks <= 0:
		return Info{}, Corrupt("holds no audio")
	}
	info.DurationS = float64(ticks) / float64(perSecond)
	if claimed > 0 && claimed != ticks {
		seconds := float64(claimed) / float64(perSecond)
		info.ClaimedS = &seconds
	}
	return info, nil
}

// reason is why a file cannot be used, without its name.
type reason struct {
	code fault.Code
	hint string
	err  error
}

func (r *reason) Error() string { return r.err.Error() }
func (r *reason) Unwrap() error { return r.err }

// Refused is the error of a file that cannot be used, without its name.
func Refused(code fault.Code, hint, format string, args ...any) error {
	return &reason{code: code, hint: hint, err: fmt.Errorf(format, args...)}
}

// Corrupt is the error of a file that breaks its format or holds no audio.
func Corrupt(format string, args ...any) error {
	return Refused(fault.Corrupt, "recreate the file, or leave it out", format, args...)
}

// Unsupported is the error of a format or codec that is not read.
func Unsupported(format string, args ...any) error {
	return Refused(fault.Unsupported, "convert it: ffmpeg -i INPUT OUTPUT.flac", format, args...)
}

// Named puts the file's name in front: the fault that callers see. errors.Unwrap returns the bare
// reason.
func Named(name string, err error) error {
	var r *reason
	if !errors.As(err, &r) {
		return fault.From(err)
	}
	return fault.Wrap(err, r.code, r.hint, "%s", fault.Printable(name))
}
