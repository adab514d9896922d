"""Adam: steps of a length that is chosen, along a running mean of the gradient [Kingma & Ba 2015]."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.likelihood.learned.course import Course
from cagp_dist.runtime.memo import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam with a step length that falls linearly, as Wenger et al. (2024, S3) train.

    With the gradient g of the objective after t steps (t = 0 at the start)::

        m <- beta1 m + (1 - beta1) g,      w <- beta2 w + (1 - beta2) g^2
        x <- x + rate(t) (m / (1 - beta1^(t+1))) / (sqrt(w / (1 - beta2^(t+1))) + epsilon)
        rate(t) = learning_rate (1 - (1 - end_factor) t / steps)

    and x is moved back into the bounds. A step changes every entry by about the learning rate, whatever the
    size of the gradient: a logarithm of 0.1 is ten percent.
    """

    steps: int = 1000  # At most so many; the objective is evaluated once more than that
    learning_rate: float = 0.1  # Length of the first step in every entry
    end_factor: float = 0.1  # Length of the last step as part of it; 1 for a constant rate
    # beta1, beta2: how much of the running means of g and g^2 stays, below 1
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8  # Size of a gradient that counts as none

    def climb(self, course: Course, checkpoint: Checkpoint | None) -> None:
        """Take steps until the course says that it is enough, or they are used up; nothing is kept."""
        vector = course.start
        first, second = np.zeros((2, vector.size))
        while course.reason is None:
            value, gradient = course.evaluate(vector)
            step = len(course.trace)
            if not course.take(vector, value, gradient) or step == self.steps:
                break
            first = self.beta1 * first + (1.0 - self.beta1) * gradient
            second = self.beta2 * second + (1.0 - self.beta2) * gradient**2
            mean, square = first / (1.0 - self.beta1 ** (step + 1)), second / (1.0 - self.beta2 ** (step + 1))
            rate = self.learning_rate * (1.0 - (1.0 - self.end_factor) * step / self.steps)
            move = rate * mean / (np.sqrt(square) + self.epsilon)
            vector = np.clip(vector + move, course.low, course.high)
