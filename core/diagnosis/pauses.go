package diagnosis

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Shares of the time: above the first a rule reports, and its change aims at the second.
const (
	savingShare     = 0.10
	savingAim       = 0.03
	evaluatingShare = 0.30
	evaluatingAim   = 0.10
)

const (
	outsideShare   = 0.15 // of the time is outside steps, evaluations and checkpoints
	outsideOften   = 0.05 // the same, when logs are written often
	oftenLogged    = 5    // steps between logs at most, to be often
	advisedLogging = 50   // steps between logs
)

func checkpoints(f *figures, run Run) *Finding {
	return longerInterval(f, f.saving, savingShare, savingAim, "checkpoints",
		"Saving checkpoints takes much of the time", "saving checkpoints", "save_steps",
		run.SaveSteps)
}

func evaluations(f *figures, run Run) *Finding {
	return longerInterval(f, f.evaluating, evaluatingShare, evaluatingAim, "evaluations",
		"Evaluations take much of the time", "evaluating", "eval_steps", run.EvalSteps)
}

// longerInterval reports a share of the time above the threshold. It advises the interval of the
// setting, in steps, at which the share comes down to the aim: with k times the interval, a share s
// becomes s / (s + k (1 - s)).
func longerInterval(f *figures, share, threshold, aim float64, kind, title, doing, setting string,
	interval *int) *Finding {
	if !(share > threshold) {
		return nil
	}
	factor := math.Ceil(share * (1 - aim) / (aim * max(1-share, 0.01)))
	finding := &Finding{
		Kind: kind, Severity: runlog.SeverityWarn, Title: title, lost: share - aim,
		Evidence: fmt.Sprintf("%s of the time was spent %s %s", units.Percent(share), doing,
			f.over()),
		Setting: setting, Change: fmt.Sprintf("set %s to %.0f times what it is", setting, factor),
	}
	if interval != nil && *interval > 0 {
		finding.Value = fmt.Sprintf("%.0f", factor*float64(*interval))
		finding.Change = fmt.Sprintf("set %s=%s, now %d", setting, finding.Value, *interval)
	}
	return finding
}

// slowBetweenSteps reports whether much time is outside steps, evaluations and checkpoints; when
// logs are written often, a smaller share of it is much.
func slowBetweenSteps(f *figures, run Run) bool {
	if profile.Or(run.LoggingSteps, math.MaxInt) <= oftenLogged {
		return f.outside > outsideOften
	}
	return f.outside > outsideShare
}

func logging(f *figures, run Run) *Finding {
	if !slowBetweenSteps(f, run) {
		return nil
	}
	finding := &Finding{
		Kind: "logging", Severity: runlog.SeverityWarn, Title: "Much time passes between the steps",
		lost: f.outside,
		Evidence: fmt.Sprintf("%s of the time is outside steps, evaluations and checkpoints %s",
			units.Percent(f.outside), f.over()),
		Change: fmt.Sprintf("set logging_steps=%d", advisedLogging), Setting: "logging_steps",
		Value: fmt.Sprint(advisedLogging),
	}
	if steps := profile.Or(run.LoggingSteps, 0); steps >= advisedLogging {
		finding.Setting, finding.Value = "", ""
		finding.Change = fmt.Sprintf(
			"check what callbacks do after each step: logging_steps is %d already", steps)
	} else if steps > 0 {
		finding.Change += fmt.Sprintf(", now %d", steps)
	}
	return finding
}
