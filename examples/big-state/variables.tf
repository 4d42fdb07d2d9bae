variable "size" {
  description = "Resource instances besides the slow chain."
  type        = number
  default     = 1000

  validation {
    condition     = var.size >= 10 && var.size <= 100000 && floor(var.size) == var.size
    error_message = "size is a whole number from 10 to 100000."
  }
}

variable "slow_seconds" {
  description = "How long each of the eight links of the slow chain takes; 0 leaves the chain out."
  type        = number
  default     = 10
}

variable "revision" {
  description = "Another number changes every hundredth node, in place."
  type        = number
  default     = 1
}

variable "side_seconds" {
  description = "How long each of the two links in left.tf, and in right.tf, takes; 0 leaves them out."
  type        = number
  default     = 0
}
