package quota_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"kl/quota"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		current, resulting, soft, hard int64
		want                           quota.Status
	}{
		{0, 1 << 40, 0, 0, quota.OK},
		{9, 10, 0, 10, quota.OK},
		{10, 11, 0, 10, quota.Hard},
		{10, 10, 0, 5, quota.Soft},
		{10, 9, 0, 5, quota.Soft},
		{10, 5, 0, 5, quota.OK},
		{10, 11, 0, 5, quota.Hard},
		{4, 5, 5, 10, quota.OK},
		{5, 6, 5, 10, quota.Soft},
		{7, 6, 5, 10, quota.Soft},
		{7, 5, 5, 10, quota.OK},
		{5, 11, 5, 10, quota.Hard},
		{5, 11, 20, 10, quota.Hard},
		{0, 0, 1, 1, quota.OK},
	} {
		if got := quota.Judge(c.current, c.resulting, quota.Limits{Soft: c.soft, Hard: c.hard}); got != c.want {
			t.Errorf("Judge(%d → %d, soft %d, hard %d): got %s, want %s", c.current, c.resulting, c.soft, c.hard, got, c.want)
		}
	}
}

// What does not grow is never refused, what grows above a hard limit always is,
// and a higher limit never makes a verdict worse.
func TestJudgeRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 20)
		current, resulting := n.Draw(t, "current"), n.Draw(t, "resulting")
		l := quota.Limits{Soft: n.Draw(t, "soft"), Hard: n.Draw(t, "hard")}
		got := quota.Judge(current, resulting, l)
		if want := l.Hard > 0 && resulting > l.Hard && resulting > current; (got == quota.Hard) != want {
			t.Fatalf("%d → %d under %+v: %s", current, resulting, l, got)
		}
		if l.Hard > 0 && l.Soft > 0 {
			if more := quota.Judge(current, resulting, quota.Limits{Soft: l.Soft + 1, Hard: l.Hard + 1}); more > got {
				t.Fatalf("%d → %d: %s under %+v, %s with higher limits", current, resulting, got, l, more)
			}
		}
		fewer := quota.NewUses(quota.Use{Current: current + 1, Resulting: current, Limits: l}, quota.Use{},
			quota.Use{Current: current, Resulting: resulting, Limits: l}, quota.Use{Current: current, Resulting: resulting, Limits: l})
		for _, u := range fewer {
			if u.Use.Status() == quota.Hard {
				t.Fatalf("a write that leaves fewer instances is refused: %+v", u)
			}
		}
	})
}

func TestHistoryGrowsWithTheState(t *testing.T) {
	l := quota.Limits{Hard: 100}
	same := quota.Use{Current: 3, Resulting: 3}
	history := quota.Use{Current: 99, Resulting: 120, Limits: l}
	for _, c := range []struct {
		bytes quota.Use
		want  quota.Status
	}{
		{quota.Use{Current: 50, Resulting: 51}, quota.Hard},
		{quota.Use{Current: 50, Resulting: 50}, quota.Soft},
	} {
		uses := quota.NewUses(same, same, c.bytes, history)
		if got := uses[3].Use.Status(); got != c.want {
			t.Errorf("a state from %d to %d bytes: got %s, want %s", c.bytes.Current, c.bytes.Resulting, got, c.want)
		}
	}
}

func TestForesee(t *testing.T) {
	now := time.Date(2026, 6, 30, 12, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		then       quota.Sample
		count      int64
		l          quota.Limits
		perDay     float64
		soft, hard time.Time
	}{
		"growing":         {quota.Sample{At: now.Add(-30 * day), Count: 10}, 40, quota.Limits{Soft: 45, Hard: 60}, 1, now.Add(5 * day), now.Add(20 * day)},
		"soft is met":     {quota.Sample{At: now.Add(-10 * day), Count: 10}, 30, quota.Limits{Soft: 30, Hard: 40}, 2, time.Time{}, now.Add(5 * day)},
		"shrinking":       {quota.Sample{At: now.Add(-10 * day), Count: 30}, 10, quota.Limits{Hard: 40}, -2, time.Time{}, time.Time{}},
		"no limit":        {quota.Sample{At: now.Add(-10 * day), Count: 10}, 30, quota.Limits{}, 2, time.Time{}, time.Time{}},
		"very far":        {quota.Sample{At: now.Add(-30 * day), Count: 10}, 11, quota.Limits{Hard: 1 << 62}, 1. / 30, time.Time{}, time.Time{}},
		"half a day only": {quota.Sample{At: now.Add(-12 * time.Hour), Count: 10}, 30, quota.Limits{Hard: 40}, 0, time.Time{}, time.Time{}},
	} {
		f := quota.Foresee(c.then, quota.Sample{At: now, Count: c.count}, c.l)
		if f.PerDay != c.perDay || !f.SoftAt.Equal(c.soft) || !f.HardAt.Equal(c.hard) || f.Growth != c.count-c.then.Count || f.TooShort != (name == "half a day only") {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}
