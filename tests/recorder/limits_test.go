package recorder

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// ---- limiters ----

type limiter = workqueue.TypedRateLimiter[key]

type limiterConfig struct {
	Kind            string
	Base, Max       time.Duration
	Fast, Slow      time.Duration
	MaxFastAttempts int `json:"max_fast_attempts"`
	Limiter         *limiterConfig
	Limiters        []limiterConfig
	Limit           rate.Limit
	Burst           int
}

// clientGo is the exponential limiter under test, and saturating is what it would be in exact arithmetic.
func clientGo(base, max time.Duration) limiter {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[key](base, max)
}

func saturating(base, max time.Duration) limiter {
	return &saturatingLimiter{base, max, map[key]int{}}
}

func (c *limiterConfig) build(t *testing.T, exponential func(base, max time.Duration) limiter) limiter {
	switch c.Kind {
	case "exponential":
		return exponential(c.Base, c.Max)
	case "fast_slow":
		return workqueue.NewTypedItemFastSlowRateLimiter[key](c.Fast, c.Slow, c.MaxFastAttempts)
	case "max_of":
		var inner []limiter
		for _, config := range c.Limiters {
			inner = append(inner, config.build(t, exponential))
		}
		return workqueue.NewTypedMaxOfRateLimiter(inner...)
	case "max_wait":
		return workqueue.NewTypedWithMaxWaitRateLimiter(c.Limiter.build(t, exponential), c.Max)
	case "bucket":
		return &workqueue.TypedBucketRateLimiter[key]{Limiter: rate.NewLimiter(c.Limit, c.Burst)}
	}
	t.Fatalf("config: limiter %q", c.Kind)
	return nil
}

// limiters calls a limiter alone, and marks the delays that exact arithmetic would not give.
func limiters(t *testing.T, trace *trace) {
	config := config[struct {
		Keys    int
		Limiter limiterConfig
	}](t, trace)
	limiter, exact := config.Limiter.build(t, clientGo), config.Limiter.build(t, saturating)
	var wrong []int
	for at, c := range trace.Ops {
		key := argument[key](t, c)
		var answer any
		switch c.name {
		case "when":
			delay := limiter.When(key)
			if delay != exact.When(key) {
				wrong = append(wrong, at)
			}
			answer = delay
		case "forget":
			limiter.Forget(key)
			exact.Forget(key)
		case "num_requeues":
			answer = limiter.NumRequeues(key)
		default:
			t.Fatalf("call %d: %q is not a call", at, c.name)
		}
		c.answers = []any{answer}
	}
	trace.mark(wrong)
}

type saturatingLimiter struct {
	base, max time.Duration
	failures  map[key]int
}

func (l *saturatingLimiter) When(key key) time.Duration {
	failures := l.failures[key]
	l.failures[key]++
	delay := l.base
	for range min(failures, 63) {
		if delay > math.MaxInt64/2 {
			delay = math.MaxInt64
			break
		}
		delay *= 2
	}
	return min(delay, l.max)
}

func (l *saturatingLimiter) Forget(key key)          { delete(l.failures, key) }
func (l *saturatingLimiter) NumRequeues(key key) int { return l.failures[key] }

// ---- the token bucket ----

func bucket(t *testing.T, trace *trace) {
	config := config[struct {
		Limit        rate.Limit
		Inf          bool
		Burst        int
		TimeGoesBack bool `json:"time_goes_back"`
	}](t, trace)
	if config.Inf {
		config.Limit = rate.Inf
	}
	bucket, now := rate.NewLimiter(config.Limit, config.Burst), time.Now()
	for at, c := range trace.Ops {
		var answer any
		switch c.name {
		case "advance":
			by := argument[time.Duration](t, c)
			if by < 0 && !config.TimeGoesBack {
				t.Fatalf("call %d: the configuration says that no time goes back", at)
			}
			now = now.Add(by)
		case "reserve":
			reservation := bucket.ReserveN(now, 1)
			answer = []any{reservation.DelayFrom(now), reservation.OK()}
		default:
			t.Fatalf("call %d: %q is not a call", at, c.name)
		}
		c.answers = []any{answer}
	}
}

// ---- backoff ----

func backoffs(t *testing.T, trace *trace) {
	config := config[struct {
		Kind           string
		Duration, Cap  time.Duration
		Factor, Jitter float64
		Steps          int
		Reset          time.Duration
		Draws          int
	}](t, trace)
	backoff := wait.Backoff{
		Duration: config.Duration, Factor: config.Factor, Jitter: config.Jitter, Steps: config.Steps, Cap: config.Cap,
	}
	clock := &timerClock{FakeClock: testingclock.NewFakeClock(time.Now())}
	// The runs of a jittered backoff.
	runs := make([]wait.Backoff, config.Draws)
	for n := range runs {
		runs[n] = backoff
	}
	var next func() time.Duration
	switch config.Kind {
	case "exp_manager":
		manager := wait.NewExponentialBackoffManager(config.Duration, config.Cap, config.Reset, config.Factor, config.Jitter, clock)
		next = func() time.Duration {
			manager.Backoff()
			return clock.last
		}
	case "delay_with_reset":
		next = backoff.DelayWithReset(clock, config.Reset)
	}

	var wrong []int
	for at, c := range trace.Ops {
		var answer any
		switch config.Kind + " " + c.name {
		case "step step":
			delay := backoff.Step()
			if delay < 0 || backoff.Duration < 0 {
				wrong = append(wrong, at)
			}
			answer = []any{delay, backoff.Steps, backoff.Duration}
		case "exp_manager next", "delay_with_reset next":
			delay := next()
			if delay < 0 {
				wrong = append(wrong, at)
			}
			answer = delay
		case "exp_manager advance", "delay_with_reset advance":
			clock.Step(argument[time.Duration](t, c))
		case "jitter jitter":
			duration, factor := argument[time.Duration](t, c), argument[float64](t, c)
			draws := draw(config.Draws, func(int) time.Duration { return wait.Jitter(duration, factor) })
			if factor <= 0 {
				factor = 1
			}
			answer = draws.orRecorded(t, at, c, duration, factor)
		case "jitter_step step":
			duration := runs[0].Duration
			draws := draw(config.Draws, func(n int) time.Duration { return runs[n].Step() })
			answer = append(draws.orRecorded(t, at, c, duration, config.Jitter), runs[0].Steps, runs[0].Duration)
		default:
			t.Fatalf("call %d: %q is not a call of a %s", at, c.name, config.Kind)
		}
		c.answers = []any{answer}
	}
	trace.mark(wrong)
}

// timerClock keeps what the last timer was set to. Its timers never fire, as nobody would take what they send.
type timerClock struct {
	*testingclock.FakeClock
	last time.Duration
}

func (c *timerClock) NewTimer(d time.Duration) clock.Timer {
	c.last = d
	return (*timer)(c)
}

type timer timerClock

func (t *timer) C() <-chan time.Time { return nil }
func (t *timer) Stop() bool          { return false }
func (t *timer) Reset(d time.Duration) bool {
	t.last = d
	return false
}

// sample is the least, the greatest, and the mean of random delays.
type sample struct {
	min, max time.Duration
	mean     float64
	draws    int
}

func draw(draws int, next func(n int) time.Duration) sample {
	s := sample{math.MaxInt64, math.MinInt64, 0, draws}
	for n := range draws {
		delay := next(n)
		s.min, s.max, s.mean = min(s.min, delay), max(s.max, delay), s.mean+float64(delay)
	}
	s.mean /= float64(draws)
	return s
}

// orRecorded checks the sample, and the recorded one if the call has one. It returns the recorded one, because random numbers are other
// ones each time.
func (s sample) orRecorded(t *testing.T, at int, c *call, duration time.Duration, factor float64) []any {
	s.check(t, at, duration, factor)
	if c.read < len(c.list) {
		var recorded []float64
		if err := json.Unmarshal(c.list[c.read], &recorded); err != nil || len(recorded) < 3 {
			t.Fatalf("call %d: %s is not a sample", at, c.list[c.read])
		}
		s = sample{time.Duration(recorded[0]), time.Duration(recorded[1]), recorded[2], s.draws}
		s.check(t, at, duration, factor)
	}
	return []any{s.min, s.max, s.mean}
}

// check fails unless this is a sample of an even distribution from the duration to the duration and the factor times as much.
func (s sample) check(t *testing.T, at int, duration time.Duration, factor float64) {
	width := factor * float64(duration)
	low, high := float64(duration), float64(duration)+width
	// In one of 10^10 samples the least number is further from the end than this, and the mean further from the middle than that.
	edge, middle := 24*width/float64(s.draws)+1, 6.5*width/math.Sqrt(12*float64(s.draws))+1
	if float64(s.min) < low || float64(s.min) > low+edge || float64(s.max) > high || float64(s.max) < high-edge ||
		math.Abs(s.mean-(low+high)/2) > middle {
		t.Errorf("call %d: %v is not a sample of delays from %v to %v", at, s, low, high)
	}
}
