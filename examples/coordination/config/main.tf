# Every directory of the experiment has this file, and all of them mean the same
# state. A new value of round replaces the piece of work; its creation calls a
# helper, which says that it has begun and waits until it may end.

variable "round" {
  description = "names the work; another value replaces it"
  type        = string
}

variable "hold" {
  description = "the helper and its arguments; the round is added as the last one"
  type        = list(string)
}

resource "terraform_data" "work" {
  input            = var.round
  triggers_replace = var.round

  provisioner "local-exec" {
    interpreter = var.hold
    command     = var.round
  }
}

# It is there only when the work is done.
resource "terraform_data" "finished" {
  input = "${terraform_data.work.output} is finished"
}

output "id" {
  value = terraform_data.work.id
}

output "finished" {
  value = terraform_data.finished.output
}
